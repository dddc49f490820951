"""Where models come from: local folders, GGUF files, the hub's cache, the hub; and folders written as GGUF files.
Nothing here loads weights or needs torch.

``huggingface_hub`` lists and authenticates; the bytes are ours, since its own download keeps no partial file when it
is interrupted, and believes the digest that an answer names. Threads write ``blobs/DIGEST.incomplete`` in the hub's
cache and go on there with a Range request, in this or a later process. A file is checked against the digest that the
hub lists before it gets its name. Small files are linked before weights are fetched, so a snapshot that has its weights
is complete and is used without asking the hub.
"""
