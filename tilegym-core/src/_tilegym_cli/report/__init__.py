"""`tilegym report`: what is measured and what conforms, as one page of HTML that needs no other file.

`measurements` joins the files, `charts` turns numbers into coordinates, `conformance` asks the installed backends, and
`page` renders the templates. All text from files and plugins passes through the templates' escaping; the page's policy
lets no script run but its own.
"""
