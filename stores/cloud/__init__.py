"""Stores at addresses of object stores: s3://, gs://, az:// and https://."""
