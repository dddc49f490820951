"""Training of the sample models, one file per concern; see tools/train_sample_models.py."""
