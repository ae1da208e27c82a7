"""Attribution of a fault: to the segment of the traces that a drop is confined to, and to settings that changed."""
