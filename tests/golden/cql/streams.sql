-- The streams that the golden queries are over.
CREATE STREAM requests (host STRING, at LONG, url STRING, status INT, bytes LONG)
  WITH (path = 'requests.csv', time = 'timestamp_seconds(at)', lateness = '5 seconds');
CREATE STREAM Sensor1 (ts TIMESTAMP, carID STRING, type STRING, MPH INT) WITH (time = 'ts');
CREATE STREAM Sensor2 (ts TIMESTAMP, carID STRING, type STRING, MPH INT) WITH (time = 'ts');
CREATE STREAM trades (at TIMESTAMP, symbol STRING, price DECIMAL(10,2), size INT) WITH (time = 'at');
CREATE STREAM quotes (at TIMESTAMP, symbol STRING, bid DECIMAL(10,2), ask DECIMAL(10,2))
  WITH (time = 'at');
CREATE STREAM readings (
  at TIMESTAMP, device STRUCT<id: STRING, place: STRUCT<x: DOUBLE, y: DOUBLE>>,
  samples ARRAY<DOUBLE>, tags MAP<STRING, STRING>, level DOUBLE, ok BOOLEAN, day DATE, note STRING
) WITH (time = 'at');
CREATE STREAM `order` (`select` INT, `from` STRING, `group` LONG, at TIMESTAMP) WITH (time = 'at');
CREATE STREAM `Straßen` (`Größe` DOUBLE, `名前` STRING, at TIMESTAMP) WITH (time = 'at');
CREATE STREAM epochs (ts LONG, v INT) WITH (time = 'timestamp_seconds(ts)');
CREATE STREAM limits (rule STRING, least INT, most INT, who STRING) WITH (source = 'rules')
