"""Cases: formulas."""

CASES = r"""
streammc ingest flights.csv new.zarr --formula ''
streammc ingest flights.csv new.zarr --formula 'late'
streammc ingest flights.csv new.zarr --formula 'late = hour'
streammc ingest flights.csv new.zarr --formula 'late ~'
streammc ingest flights.csv new.zarr --formula 'late ~ 0'
streammc ingest flights.csv new.zarr --formula 'late ~ week'
streammc ingest flights.csv new.zarr --formula 'late + hour ~ distance'
streammc ingest flights.csv new.zarr --formula 'late ~ late + hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour:offset(distance)'
streammc ingest flights.csv new.zarr --formula 'late ~ offset(distance)' --offset hour
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --response late
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --no-intercept
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --weight hour
streammc ingest flights.csv new.zarr --formula 'late ~ (hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma + phi ~ hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~ week'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~ hour - 1'
streammc ingest flights.csv new.zarr --formula 'late ~ hour - 1' --formula-for 'sigma ~ hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~ offset(hour)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~ hour + (1 | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier)' --formula-for 'sigma ~ hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~ 1' --group carrier
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~ 1' --formula-for 'sigma ~ hour'
streammc ingest flights.csv new.zarr --response late --formula-for 'sigma ~ hour'
streammc ingest flights.csv new.zarr --like flights.zarr --formula-for 'sigma ~ hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --formula-for 'sigma ~ C(carrier):hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour & distance'
streammc ingest flights.csv new.zarr --formula 'late ~ "hour"'
streammc ingest flights.csv new.zarr --formula 'late ~ air time'
streammc ingest flights.csv new.zarr --formula 'late ~ lambda'
streammc ingest flights.csv new.zarr --formula 'late ~ __import__'
streammc ingest flights.csv new.zarr --formula 'late ~ exit(1)'
streammc ingest flights.csv new.zarr --formula 'late ~ logg(hour)'
streammc ingest flights.csv new.zarr --formula 'late ~ np.log(hour)'
streammc.from_table(frame.assign(day=pd.Timestamp("2020-01-01")), formula="late ~ day")
streammc ingest flights.csv new.zarr --formula 'late ~ log(hour'
streammc ingest flights.csv new.zarr --formula 'late ~ log()'
streammc ingest flights.csv new.zarr --formula 'late ~ log(hour, 2)'
streammc ingest flights.csv new.zarr --formula 'late ~ log(hour, base=2)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour.real'
streammc ingest flights.csv new.zarr --formula 'late ~ I(hour.real)'
streammc ingest flights.csv new.zarr --formula 'late ~ I(hour[0])'
streammc ingest flights.csv new.zarr --formula 'late ~ I(hour if late else 1)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour^2'
streammc ingest flights.csv new.zarr --formula 'late ~ hour**x'
streammc ingest flights.csv new.zarr --formula 'late ~ hour**99'
streammc ingest flights.csv new.zarr --formula 'late ~ (hour + distance + carrier)**(9)'
streammc ingest flights.csv new.zarr --formula 'late ~ 2*hour'
streammc ingest flights.csv new.zarr --formula 'late ~ 2.5'
streammc ingest flights.csv new.zarr --formula 'late ~ 1e3:hour'
streammc ingest flights.csv new.zarr --formula 'C(carrier) ~ hour'
streammc ingest flights.csv new.zarr --formula 'late ~ log(hour)'
streammc ingest flights.csv new.zarr --formula 'late ~ log(carrier)'
streammc ingest flights.csv new.zarr --formula 'carrier ~ hour'
streammc ingest flights.csv new.zarr --formula 'late ~ scale(hour - hour)'
streammc ingest constant.csv new.zarr --formula 'late ~ scale(distance)'
streammc ingest flights.csv new.zarr --formula 'late ~ poly(hour, 99)'
streammc ingest constant.csv new.zarr --formula 'late ~ poly(distance, 2)'
streammc ingest flights.csv new.zarr --formula 'late ~ poly(hour, order=2)'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, df=1)'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, df="five")'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, knots=[99])'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, knots=[])'
streammc ingest constant.csv new.zarr --formula 'late ~ bs(distance, df=5)'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, df=5, lower_bound=50, upper_bound=60)'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, df=5, lower_bound=9, upper_bound=1)'
streammc ingest flights.csv new.zarr --formula 'late ~ cr(hour, df=2)'
streammc ingest flights.csv new.zarr --formula 'late ~ C(carrier, levels=["AA"])'
streammc ingest flights.csv new.zarr --formula 'late ~ C(carrier, levels=[])'
streammc ingest flights.csv new.zarr --formula 'late ~ C(carrier, Treatment("ZZ"))'
streammc ingest flights.csv new.zarr --formula 'late ~ C(carrier, contr.treatment("ZZ"))'
streammc ingest flights.csv new.zarr --formula 'late ~ C(carrier, reference="ZZ")'
streammc ingest flights.csv new.zarr --formula 'late ~ I(carrier == 3)'
streammc ingest flights.csv new.zarr --formula 'late ~ I(hour == "AA")'
streammc ingest many-levels.csv new.zarr --formula 'late ~ C(carrier):C(hour)'
streammc ingest missing.csv new.zarr --formula 'late ~ distance'
streammc ingest all-missing.csv new.zarr --formula 'late ~ distance' --drop-missing
streammc ingest header.csv new.zarr --formula 'late ~ hour'
streammc ingest text.csv new.zarr --formula 'late ~ log(distance)'
streammc ingest intercept.csv new.zarr --formula 'late ~ Intercept'
streammc.from_table(frame, formula=["late ~ hour"])
streammc.from_table([pd.DataFrame({"y": [0, 1], "size": pd.Categorical(order, order, ordered=True)}) for order in (["s", "m"], ["m", "s"])], formula="y ~ size")
streammc.from_table(pd.DataFrame({"y": [0, 1], "size": pd.Categorical([38, 40])}), response="y")
streammc.from_table(frame, formula="late ~ hour" + " + hour" * 5000)
streammc.from_table(frame, formula="late ~ " + " + ".join(f"I(hour + {k})" for k in range(2000)))
streammc.from_table(frame, formula="late ~ " + "(" * 100 + "hour" + ")" * 100)
streammc.from_table(frame, formula="late ~ I(" + "-" * 200 + "hour)")
streammc.from_table(frame, formula="late ~ (" + " + ".join("abcdefghijkl") + ")**12")
streammc.from_table(frame.rename(columns={"delays": "log(hour)"}), formula="late ~ log(hour) + `log(hour)`")
streammc.from_table(pd.DataFrame({"y": np.arange(5000) % 2, "g": np.arange(5000).astype(str)}), formula="y ~ C(g)")
streammc.from_table(pd.DataFrame({"y": np.arange(200) % 2, "g": np.arange(200).astype(str)}), formula="y ~ C(g):C(g, Treatment)")
streammc ingest flights.csv new.zarr --formula 'late ~ I(hour:distance)'
streammc ingest flights.csv new.zarr --formula 'late ~ I(hour +)'
streammc ingest flights.csv new.zarr --formula 'late ~ log(3)'
streammc ingest flights.csv new.zarr --formula 'late ~ log(poly(hour, 2))'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, knots=[far])'
streammc ingest flights.csv new.zarr --formula 'late ~ bs(hour, knots=[1e999])'
streammc ingest flights.csv new.zarr --formula 'late ~ hour' --weight carrier
streammc ingest text.csv new.zarr --like formula.zarr
streammc ingest flights.csv new.zarr --formula 'late ~ ﬁx'
streammc.from_table(frame, formula="late ~ " + "hour:" * 900 + "hour")
streammc ingest flights.csv new.zarr --formula 'late ~ hour + distance + (1 + hour | carrier) + (0 + distance | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier/)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier/origin:hour)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier)' --group-as carrier=crossing
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier)' --group-as carrier=crossed --cells yes
streammc fit flights.csv -o run --formula 'late ~ hour + (1 | carrier)' --model logistic --sampler gibbs
streammc ingest many-levels.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (1 | delays)' --group-as carrier=columns
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (1 | delays)' --group-as carrier=column
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (1 | delays)' --group-as carrier
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (1 | delays)' --group-as week=columns
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (1 | delays)' --group-as carrier=integrated,delays=integrated
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 + hour | carrier)' --group-as carrier=columns
streammc ingest flights.csv new.zarr --response late --group carrier --group-as carrier=columns
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (1 | late)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (1 | airline)'
streammc ingest constant.csv new.zarr --formula 'late ~ hour + (1 | distance)' --group-as distance=columns
streammc ingest flights.csv new.zarr --formula 'late ~ hour + C(carrier) + (1 + hour | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (0 | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (hour + hour | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (0 + distance | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier) + (hour | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier/flight number)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + 1 | carrier'
streammc ingest flights.csv new.zarr --formula 'late ~ hour * (1 | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ (1 | carrier):hour'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (hour * | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 + distance | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + C(delays) + (0 + C(delays) | carrier)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier)' --group delays
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | carrier)' --no-shuffle
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | late)'
streammc ingest flights.csv new.zarr --formula 'late ~ hour + (1 | airline)'
streammc ingest flights.csv new.zarr --formula 'late ~ C(carrier)' --codes-above -1
streammc ingest flights.csv new.zarr --response late --features hour --codes-above 3
streammc ingest flights.csv new.zarr --like coded.zarr --codes-above 3
streammc.from_table(frame, formula="late ~ C(carrier)", codes_above="all")
"""
