"""Cases: stores that are missing, foreign or damaged."""

CASES = r"""
streammc info nowhere.zarr
streammc ingest flights.csv full --response late --overwrite
old = streammc.from_table(frame, response="late", features=["hour"], path="new.zarr"); streammc.from_table(frame, response="late", features=["distance"], path="new.zarr", overwrite=True); old.rows()
streammc info file
streammc info file/inner
streammc info nothing
streammc info full
streammc info v2.zarr
streammc info ''
streammc verify no-manifest.zarr
streammc verify nowhere
streammc info no-chunk.zarr
streammc info no-group.zarr
streammc info no-member.zarr
streammc sample byte.zarr -o new-run --model logistic
streammc info short.zarr
streammc info no-json.zarr
streammc info list.zarr
streammc info twice.zarr
streammc info manifest-version.zarr
streammc info fingerprint.zarr
streammc info entries.zarr
streammc info inputs.zarr
streammc info link.zarr
streammc info folder.zarr
streammc info linked.zarr
streammc info version.zarr
streammc info rows.zarr
streammc info names.zarr
streammc info renamed.zarr
streammc info group.zarr
streammc info foreign.zarr
streammc info dtype.zarr
streammc info shape.zarr
streammc info negative.zarr
streammc info columns.zarr
streammc info codec.zarr
streammc info shorter.zarr
streammc info chunk.zarr
streammc info large.zarr
streammc info many.zarr
streammc info odd.zarr
streammc info fill.zarr
streammc info expression.zarr
streammc info no-text.zarr
streammc info kinds.zarr
streammc ingest flights.csv new.zarr --like no-kinds.zarr
streammc info states.zarr
streammc ingest flights.csv new.zarr --like no-states.zarr
streammc ingest flights.csv flights.zarr.partial-7 --response late
streammc ingest flights.csv .flights.zarr.0123abcd.partial.old --response late
streammc.open_store("nowhere.zarr")
streammc.open_store(3)
streammc.open_store(None)
streammc.open_store("x" * 5000)
streammc.open_store("a\0b")
streammc.open_store("run")
streammc.open_store("cv.zarr")
streammc.open_store(store)
from streammc.stores import encode_rows; list(encode_rows(None, frame))
from streammc.stores import encode_rows; list(encode_rows({}, frame))
from streammc.stores import encode_rows; list(encode_rows(store.attributes, None))
from streammc.stores import encode_rows; list(encode_rows(store.attributes, frame[["hour"]]))
from streammc.stores import encode_rows; list(encode_rows(streammc.open_store("formula.zarr").attributes, frame.assign(carrier=3)))
from streammc.stores import encode_rows; list(encode_rows(streammc.from_table(frame, formula="late ~ 1").attributes, frame))
streammc info formula.zarr/X
streammc info text-formula.zarr
streammc info extra.zarr
streammc info meta-link.zarr
streammc info meta-folder.zarr
streammc info meta-byte.zarr
streammc ingest flights.csv new.zarr --like expression.zarr
streammc info groups-attribute.zarr
streammc info groups-number.zarr
streammc info designs.zarr
streammc info designs-columns.zarr
streammc info factors.zarr
streammc info factors-formula.zarr
streammc info groups-chunk.zarr
streammc.open_store("groups-offset.zarr").groups
streammc.open_store("groups-byte.zarr").groups
streammc info codes-attribute.zarr
streammc info codes-number.zarr
streammc sample codes-level.zarr -o new-run --model logistic
from streammc.control_variates.full_pass.row_norms import LargestNorms; streammc.open_store("codes-level.zarr").reduce(LargestNorms())
"""
