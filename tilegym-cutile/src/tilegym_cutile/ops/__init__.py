"""One module per op, named after it: the file's name is its registration, and it is imported on the op's first call."""
