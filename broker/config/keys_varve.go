package config

// varveKeys is the part of the table that Apache Kafka has no names for.
var varveKeys = []Key{
	{Name: "varve.data.dir", Type: TypeString, Default: "./varve-data", Acts: true,
		Doc: "Folder with log, meta, tier and cache (--data). When only log.dirs is set: .varve inside that folder."},
	{Name: "varve.disk.reserve.bytes", Type: TypeLong, Default: "-1", Check: atLeast(-1), Acts: true,
		Doc: "Appends are refused with KAFKA_STORAGE_ERROR while the disk has less room than this, so that metadata and checkpoints still fit; -1 is a fiftieth of the disk, from 16 MiB to 1 GiB."},
	{Name: "varve.tier.url", Type: TypeString, Default: "", Acts: true,
		Doc: "Object store that old segments settle into: dir:///path, s3://bucket/prefix?region=R&endpoint=URL&path-style=true or minio://bucket/prefix?endpoint=URL. Without a configuration file a folder of varve.data.dir; with one, no tier unless it is set."},
	{Name: "varve.topic.remote.storage.enable", Type: TypeBool, Null: true, Acts: true,
		Doc: "Default of remote.storage.enable for topics that are not compacted; true when there is a tier."},
	{Name: "varve.tier.upload.max.lag.ms", Type: TypeLong, Default: "600000", Check: atLeast(1000), Acts: true,
		Doc: "A segment of a tiered topic is closed at this age, so that the tier is never further behind than this or the oldest open transaction."},
	{Name: "varve.tier.upload.deadline.ms", Type: TypeLong, Default: "900000", Check: atLeast(1000), Acts: true,
		Doc: "Longest time one upload may take before it is given up and tried again."},
	{Name: "varve.tier.cache.bytes", Type: TypeLong, Default: "-1", Check: atLeast(-1), Acts: true,
		Doc: "Size of the cache of tier chunks on local disk; -1 is 20% of the disk."},
	{Name: "varve.tier.delete.delay.ms", Type: TypeLong, Default: "86400000", Check: atLeast(0), Acts: true,
		Doc: "Wait before an object that is no longer needed is deleted from the store; the bound of going back in time."},
	{Name: "varve.tier.journal.interval.ms", Type: TypeLong, Default: "10000", Check: atLeast(100), Acts: true,
		Doc: "Time between two writes of the metadata journal into the store."},
	{Name: "varve.http.listen", Type: TypeString, Default: "127.0.0.1:9644", Acts: true,
		Doc: "Address of health, metrics, JSON API and status page, as host:port; empty for none."},
	{Name: "varve.insecure.listeners", Type: TypeBool, Default: "false", Acts: true,
		Doc: "Allow listeners without security on addresses that other machines can reach."},
}
