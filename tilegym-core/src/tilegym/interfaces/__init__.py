"""What returns modules or functions built on ops, one file each; found by file name and shown in `tilegym.ops`.

An interface is plain Python and no op: nothing dispatches it. Its `backend=` binds what it returns to one backend;
without it, each call of what it returned chooses anew. A file `_*.py` is no interface.
"""
