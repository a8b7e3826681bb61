package protocol

// schemas holds the body of every advertised request (common/message/
// *Request.json), version by version, for the walk before Decode. A test holds
// each against kmsg.
var schemas = map[int16][]op{
	KeyProduce:                 mustSchema(`3+:nstr i16 i32 [ -12:str 13+:uuid [ i32 nbytes ] ]`),
	KeyFetch:                   mustSchema(`-14:i32 i32 i32 3+:i32 4+:i8 7+:i32 7+:i32 [ -12:str 13+:uuid [ i32 9+:i32 i64 12+:i32 5+:i64 i32 ] ] 7+:[ -12:str 13+:uuid []i32 ] 11+:str`),
	KeyListOffsets:             mustSchema(`i32 2+:i8 [ str [ i32 4+:i32 i64 0:i32 ] ] 10+:i32`),
	KeyMetadata:                mustSchema(`n[ 10+:uuid -9:str 10+:nstr ] 4+:bool 8-10:bool 8+:bool`),
	KeyOffsetCommit:            mustSchema(`str i32 str 7+:nstr 2-4:i64 [ -9:str 10+:uuid [ i32 i64 6+:i32 nstr ] ]`),
	KeyOffsetFetch:             mustSchema(`-7:str -1:[ str []i32 ] 2-7:n[ str []i32 ] 8+:[ str 9+:nstr 9+:i32 n[ -9:str 10+:uuid []i32 ] ] 7+:bool`),
	KeyFindCoordinator:         mustSchema(`-3:str 1+:i8 4+:[]str`),
	KeyJoinGroup:               mustSchema(`str i32 1+:i32 str 5+:nstr str [ str bytes ] 8+:nstr`),
	KeyHeartbeat:               mustSchema(`str i32 str 3+:nstr`),
	KeyLeaveGroup:              mustSchema(`str -2:str 3+:[ str nstr 5+:nstr ]`),
	KeySyncGroup:               mustSchema(`str i32 str 3+:nstr 5+:nstr 5+:nstr [ str bytes ]`),
	KeyDescribeGroups:          mustSchema(`[]str 3+:bool`),
	KeyListGroups:              mustSchema(`4+:[]str 5+:[]str`),
	KeyAPIVersions:             mustSchema(`3+:str 3+:str 5+:nstr 5+:i32`),
	KeyCreateTopics:            mustSchema(`[ str i32 i16 [ i32 []i32 ] [ str nstr ] ] i32 1+:bool`),
	KeyDeleteTopics:            mustSchema(`-5:[]str 6+:[ nstr uuid ] i32`),
	KeyInitProducerID:          mustSchema(`nstr i32 3+:i64 3+:i16`),
	KeyDescribeConfigs:         mustSchema(`[ i8 str n[]str ] 1+:bool 3+:bool`),
	KeyAlterConfigs:            mustSchema(`[ i8 str [ str nstr ] ] bool`),
	KeyIncrementalAlterConfigs: mustSchema(`[ i8 str [ str i8 nstr ] ] bool`),
	KeyCreatePartitions:        mustSchema(`[ str i32 n[ []i32 ] ] i32 bool`),
	KeyDeleteGroups:            mustSchema(`[]str`),
	KeyOffsetDelete:            mustSchema(`str [ str [ i32 ] ]`),
	KeyElectLeaders:            mustSchema(`1+:i8 n[ str []i32 ] i32`),
	KeyDeleteRecords:           mustSchema(`[ str [ i32 i64 ] ] i32`),
	KeyOffsetForLeaderEpoch:    mustSchema(`3+:i32 [ str [ i32 i32 i32 ] ]`),
	KeyDescribeLogDirs:         mustSchema(`n[ str []i32 ]`),
	KeyDescribeClientQuotas:    mustSchema(`[ str i8 nstr ] bool`),
	KeyDescribeProducers:       mustSchema(`[ str []i32 ]`),
	KeyListConfigResources:     mustSchema(`1+:[]i8`),
	KeyDescribeTopicPartitions: mustSchema(`[ str ] i32 ?[ str i32 ]`),
	KeyDescribeCluster:         mustSchema(`bool 1+:i8 2+:bool`),
}
