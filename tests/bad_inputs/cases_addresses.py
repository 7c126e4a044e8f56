"""Cases: addresses of stores, shards, and zarr groups of other programs."""

CASES = r"""
streammc info ftp://host/store.zarr
streammc info s3://key:secret@bucket/store.zarr
streammc sample https://host/store.zarr?X-Amz-Signature=secret -o new-run --model logistic
streammc info file://host/store.zarr
streammc info http://host.example/store.zarr
streammc info s3://bucket/../store.zarr
streammc info 's3://bucket/store.zarr#secret'
streammc summarize s3://bucket/store.zarr --model logistic
streammc pull flights.zarr s3://bucket/copy.zarr
streammc pull nowhere.zarr copy.zarr
streammc pull flights.zarr raw.zarr
streammc pull flights.zarr nowhere/copy.zarr
streammc pull 'flights.zarr#X=X&y=y' copy.zarr
streammc ingest flights.csv https://host/new.zarr --response late
streammc ingest flights.csv s3://bucket/new.zarr --response late --overwrite
streammc ingest flights.csv new.zarr --response late --compression zstd
streammc.ingest("flights.csv", "new.zarr", response="late", layout="shards")
streammc verify 'flights.zarr#X=X&y=y'
streammc info 'flights.zarr#X=X&X=y'
streammc info 'flights.zarr#X=../X'
streammc info 'flights.zarr#X=none'
streammc info 'flights.zarr#y=y'
streammc info 'flights.zarr#X=y'
streammc info 'shorter.zarr#X=X&y=y'
streammc info 'negative.zarr#X=X'
streammc info 'codec.zarr#X=X'
streammc info 'large.zarr#X=X'
streammc info 'many.zarr#X=X'
streammc info 'flights.zarr#X=feature'
streammc info v2.zarr
"""
