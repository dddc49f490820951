"""Datastores: folders of memory-mapped arrays that drafts are retrieved from; building and searching them."""
