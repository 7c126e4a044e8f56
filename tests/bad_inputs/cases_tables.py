"""Cases: tables and options of ``streammc ingest`` and ``streammc simulate``."""

CASES = r"""
streammc ingest
streammc ingest flights.csv
streammc ingest nowhere.csv new.zarr --response late
streammc ingest flights.csv new.zarr --response lat
streammc ingest flights.csv new.zarr --response late
streammc ingest flights.csv new.zarr --response late --features distance,dist
streammc ingest flights.csv new.zarr --response late --features distance,distance
streammc ingest flights.csv new.zarr --response late --features distance --features hour
streammc ingest flights.csv new.zarr --response late --features distance hour
streammc ingest flights.csv new.zarr --response late --features late,hour
streammc ingest flights.csv new.zarr --response late --features hour --offset hour
streammc ingest flights.csv new.zarr --response late --offset late
streammc ingest flights.csv new.zarr --trials delays --features hour
streammc ingest flights.csv new.zarr --features '' --no-intercept
streammc ingest flights.csv flights.zarr --response late --features hour
streammc ingest flights.csv flights.csv --response late --features hour
streammc ingest flights.csv file/new.zarr --response late --features hour
streammc ingest flights.csv flights.zarr/new.zarr --response late --features hour
streammc ingest flights.csv no/such/place.zarr --response late --features hour
streammc ingest flights.csv run --response late --features hour
streammc ingest flights.csv no-hour.csv new.zarr --response late --features distance
streammc ingest flights.csv flights.parquet new.zarr --response late --features hour
streammc ingest missing.csv new.zarr --response late --features distance
streammc ingest infinite.csv new.zarr --response late --features distance
streammc ingest all-missing.csv new.zarr --response late --features distance --drop-missing
streammc ingest text.csv new.zarr --response late --features distance
streammc ingest flights.csv new.zarr --response late --features carrier
streammc ingest huge.csv new.zarr --response late --features distance --no-standardize --dtype float64
streammc ingest range.csv new.zarr --response late --features distance
streammc ingest narrow.csv new.zarr --response late --features distance --no-standardize
streammc ingest intercept.csv new.zarr --response late --features Intercept,hour
streammc ingest negative.csv new.zarr --response late --features hour --weight delays
streammc ingest zero.csv new.zarr --response late --features hour --weight delays
streammc ingest zero.csv new.zarr --response late --features hour --trials delays
streammc ingest ragged.csv new.zarr --response late --features hour
streammc ingest empty.csv new.zarr --response late
streammc ingest header.csv new.zarr --response late --features hour
streammc ingest open-quote.csv new.zarr --response late --features hour
streammc ingest latin.csv new.zarr --response late
streammc ingest latin-rows.csv new.zarr --formula 'late ~ C(carrier)'
streammc ingest utf16.csv new.zarr --response late
streammc ingest twice.csv new.zarr --response late
streammc ingest half.csv.gz new.zarr --response late --features hour
streammc ingest binary.csv new.zarr --response late
streammc ingest half.parquet new.zarr --response late
streammc ingest table.xlsx new.zarr --response late
streammc ingest flights.zarr new.zarr --response late
streammc ingest nothing new.zarr --response late
streammc ingest folder new.zarr --response late
streammc ingest /dev/null new.zarr --response late
streammc ingest lists.parquet new.zarr --response late
streammc ingest bytes.parquet new.zarr --response late
streammc ingest large.parquet new.zarr --response late
streammc ingest flights.csv new.zarr --response late --features hour --row-id late --offset late
streammc ingest flights.csv new.zarr --response late --features hour --row-id week
streammc ingest flights.csv new.zarr --response late --features hour --chunk-rows 0
streammc ingest flights.csv new.zarr --response late --features hour --chunk-rows 100000000
streammc ingest flights.csv new.zarr --response late --features hour --seed -1
streammc ingest flights.csv new.zarr --response late --features hour --seed one
streammc ingest flights.csv new.zarr --response late --features hour --dtype int8
streammc ingest flights.csv new.zarr --response late --features hour --layout zip
streammc ingest flights.csv new.zarr --like nowhere.zarr
streammc ingest no-hour.csv new.zarr --like flights.zarr
streammc ingest flights.csv new.zarr --like flights.zarr --response late
streammc ingest flights.csv new.zarr --like flights.zarr --no-intercept
streammc ingest flights.csv new.zarr --like flights.zarr --no-standardize
streammc ingest missing.csv new.zarr --like formula.zarr
streammc simulate
streammc simulate logit new.zarr --rows 10 --dim 2 --seed 1
streammc simulate logistic new.zarr --rows 0 --dim 2 --seed 1
streammc simulate logistic new.zarr --rows ten --dim 2 --seed 1
streammc simulate logistic new.zarr --rows 10 --dim 100000 --seed 1
streammc simulate logistic new.zarr --rows 10 --dim 2 --seed -1
streammc simulate logistic new.zarr --rows 10 --dim 2
streammc simulate logistic begun.zarr --rows 50 --dim 2 --seed 1
streammc simulate logistic new.zarr --rows 10 --dim 2 --seed 1 --intercept 99
streammc simulate mixture new.zarr --rows 10 --dim 2 --seed 1 --intercept 1
streammc simulate mixture-tied new.zarr --rows 10 --dim 2 --seed 1
streammc simulate gaussian-process new.zarr --rows 9999 --dim 1 --seed 1
streammc simulate logistic flights.zarr --rows 10 --dim 2 --seed 1
streammc simulate logistic new.zarr --rows 10 --dim 2 --seed 1 --chunk-rows -1
streammc.ingest([], "new.zarr")
streammc.ingest(None, "new.zarr", response="late")
streammc.ingest(3, "new.zarr", response="late")
streammc.ingest(X, "new.zarr", response="late")
streammc.ingest("flights.csv", None, response="late")
streammc.ingest("flights.csv", 3, response="late")
streammc.ingest("flights.csv", "ftp://bucket/new.zarr", response="late")
streammc.ingest("flights.csv", "new.zarr", response=3)
streammc.ingest("flights.csv", "new.zarr", response="late", features=[3])
streammc.ingest("flights.csv", "new.zarr", response="late", features=3)
streammc.ingest("flights.csv", "new.zarr", response="late", features=["hour"], seed="one")
streammc.ingest("flights.csv", "new.zarr", response="late", features=["hour"], seed=2**64)
streammc.ingest("flights.csv", "new.zarr", response="late", features=["hour"], dtype="int8")
streammc.ingest("flights.csv", "new.zarr", response="late", features=["hour"], layout="zip")
streammc.ingest("flights.csv", "new.zarr", response="late", features=["hour"], chunk_rows="many")
streammc.ingest("flights.csv", "new.zarr", response="late", features=["hour"], like=3)
streammc.ingest("flights.csv", "new.zarr", response="late", features=["hour"], progress=3)
streammc.ingest("flights.csv", "new.zarr", formula=3)
streammc.ingest("x" * 5000, "new.zarr", response="late")
streammc.from_table(frame, response="late")
streammc.from_table(frame, response="lat", features=["hour"])
streammc.from_table(frame, response="late", features=["distance", "week"])
streammc.from_table(frame[:0], response="late", features=["hour"])
streammc.from_table(None, response="late")
streammc.from_table(X, response="late")
streammc.from_table({"late": 3}, response="late")
streammc.from_table([1, 2], response="late")
streammc.from_table(dataset, response="late")
streammc.from_table(da.from_array(X), response="late")
streammc.from_table(frame, response="late", features=["hour"], path=3)
streammc.from_table(frame, response="late", features=["hour"], path="flights.zarr")
streammc.from_table(frame.assign(hour=np.nan), response="late", features=["hour"])
streammc.from_table(frame.assign(hour=frame.hour.astype(complex)), response="late", features=["hour"])
streammc.from_table(frame.assign(day=pd.Timestamp("2020-01-01")), response="late", features=["day"])
streammc.from_table(frame.rename(columns={"hour": "distance"}), response="late", features=["distance"])
streammc.from_table(frame.assign(day=pd.Timestamp("2020-01-01")), response="day", features=["hour"])
streammc.from_table(frame.assign(day="2020-01-01"), response="late", features=["day"])
streammc.from_table(frame.assign(price="13,081"), response="late", features=["price"])
streammc ingest flights.csv new.zarr --response carrier --features hour
streammc ingest flights.csv new.zarr --response late --features hour --weight carrier
streammc.from_table(frame, like="flights.csv")
streammc.from_table(frame, like=frame)
streammc.ingest("flights.csv", "new.zarr", response="late", features=[], intercept=False)
streammc.ingest("flights.csv", "file/new.zarr", response="late", features=["hour"])
streammc ingest folder/inner folder/inner/new.zarr
streammc ingest full full/new.zarr --response late
streammc.from_table(frame, response="late", features=["carrier"])
streammc.from_table(frame.assign(id=pd.Timestamp(0)), response="late", features=["hour"], row_id="id")
streammc.from_table(pa.table({"late": [0, 1], "x": [1, 2], "id": pa.array([b"\xff\xfe"] * 2)}), response="late", features=["x"], row_id="id")
streammc.from_table(pa.table({"late": [0, 1], "x": pa.array(["a", "b"]).dictionary_encode()}), response="late", features=["x"])
streammc ingest flights.csv new.zarr --response late --group carier
streammc ingest flights.csv new.zarr --response late --group late
streammc ingest flights.csv new.zarr --response late --features hour --group hour
streammc ingest flights.csv new.zarr --response late --features hour --group carrier --no-shuffle
streammc ingest flights.csv new.zarr --like flights.zarr --group carrier
streammc ingest missing.csv new.zarr --response late --features hour --group distance
streammc ingest constant.csv new.zarr --response late --features hour --group distance
streammc ingest lists.parquet new.zarr --response late --features late --group x
streammc.from_table(frame, response="late", features=["hour"], group="distance")
streammc.from_table(frame.assign(place=["x" * 10**6] * len(frame)), response="late", features=["hour"], group="place")
streammc.from_table(frame.assign(hour=frame.hour.where(frame.delays == 2)).query("delays == 2 or delays == 3"), response="late", features=["hour"], group="delays", drop_missing=True)
streammc.from_table(frame.assign(hour=frame.hour.where(frame.delays == 2)), response="late", features=["hour"], group="delays", drop_missing=True, path="new.zarr")
streammc simulate mixture new.zarr --rows 10 --dim 2 --seed 1 --groups 3
streammc simulate logistic new.zarr --rows 10 --dim 2 --seed 1 --groups 11
streammc simulate logistic new.zarr --rows 10 --dim 2 --seed 1 --groups 1
streammc ingest --append flights.csv flights.zarr --response late
streammc ingest --append missing.csv flights.zarr
streammc ingest --append labels.csv nowhere.zarr
streammc ingest --append flights.csv groups.zarr
streammc ingest --append flights.zarr flights.zarr
streammc ingest --append no-hour.csv flights.zarr
streammc ingest labels.csv all.zarr --again
streammc.ingest("flights.csv", "known.zarr", response="late", features=["hour"]); streammc.append(["flights.csv", "labels.csv"], "known.zarr")
streammc.ingest("flights.csv", "known.zarr", response="late", features=["hour"]); shutil.copy("flights.csv", "copy.csv"); streammc.append("copy.csv", "known.zarr")
streammc.ingest("labels.csv", "known.zarr", response="late", features=["hour"]); shutil.copy("flights.csv", "copy.csv"); streammc.append(["flights.csv", "copy.csv"], "known.zarr")
streammc.append(frame.assign(late=300), "flights.zarr")
streammc.append(frame.assign(hour=frame.hour * 1e39), "flights.zarr")
streammc.append(frame.drop(columns="late"), "flights.zarr")
streammc.append(frame.assign(carrier="new"), "formula.zarr")
streammc.ingest(frame, "ids.zarr", response="late", features=["hour"], row_id="carrier"); streammc.append(frame.assign(carrier="a name that is longer than any other"), "ids.zarr")
streammc.ingest(frame, "ids.zarr", response="late", features=["hour"], row_id="carrier"); streammc.append(frame.drop(columns="carrier"), "ids.zarr")
streammc.ingest(frame, "order.zarr", response="late", features=["hour"], shuffle=False); streammc.append(frame, "order.zarr", shuffle=True)
streammc.ingest(frame, "order.zarr", response="late", features=["hour"], shuffle=False); streammc.append(frame.assign(hour=frame.hour.where(frame.hour > 5)), "order.zarr", drop_missing=True)
streammc.ingest(frame, "old.zarr", response="late", features=["hour"]); old = streammc.open_store("old.zarr"); streammc.append(frame, "old.zarr"); old.rows()
streammc ingest 'none-*.csv' new.zarr --response late
streammc ingest years new.zarr --response late
streammc ingest roles new.zarr --response late
streammc ingest 'https://host/t/*.csv' new.zarr --response late
streammc ingest ftp://key:secret@host/t.csv new.zarr --response late
streammc ingest s3://key:secret@bucket/t.csv new.zarr --response late
streammc.from_table(__import__("pyarrow").table({"y": [0, 1], "a": ["u", "v"], "b": ["u", "v"]}).to_reader(), formula="y ~ (1 | a) + (1 | b)")
"""
