"""The contracts of core's ops, one file each; found by file name."""
