"""The apps, each of which can be deleted: nothing outside this folder names one."""
