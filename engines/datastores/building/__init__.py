"""Building datastores from texts and from a model's own answers.

A build happens in ``NAME.partial``, under a lock. Files only grow; every two seconds they are synced and their lengths
noted in a journal, with the place in the corpus to go on from. A resumed build cuts the files to these lengths, so an
interrupted build gives the same bytes. The manifest is written last, and a rename makes it a datastore. Keys of a dense
part are states of the row that read a token; documents are read after what the model reads before such text. Indexes
are built in a process of their own, since their libraries write to the terminal and cannot be stopped.
"""
