"""Read traces and documents from files of many formats and shapes, and write traces back."""
