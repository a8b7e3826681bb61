package api

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/protocol"
)

// DescribeLogDirs, key 35, versions 1 to 5 (DescribeLogDirsRequest.json).
//
// There is one folder; a failed one is KafkaStorageError. Null topics mean all partitions, an empty list none; what is
// not here is left out. Sizes are those of local log files: what has settled and was freed does not count. The size of
// the volume is told from version 4. No log moves between folders and none is cordoned.
func (d *Dispatcher) describeLogDirs(req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	dir := d.o.Replicas.LogDir()
	out := kmsg.NewDescribeLogDirsResponseDir()
	out.Dir, out.TotalBytes, out.UsableBytes = dir.Path, dir.TotalBytes, dir.UsableBytes
	if dir.Offline != nil {
		out.ErrorCode = int16(protocol.KafkaStorageError)
	}
	wanted := map[topicPartition]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			wanted[topicPartition{t.Topic, p}] = true
		}
	}
	slices.SortFunc(dir.Logs, func(a, b replica.LogSize) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, l := range dir.Logs {
		if req.Topics != nil && !wanted[topicPartition{l.Topic, l.Partition}] {
			continue
		}
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != l.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = l.Topic
			out.Topics = append(out.Topics, t)
		}
		p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		p.Partition, p.Size = l.Partition, l.Bytes
		last := &out.Topics[len(out.Topics)-1]
		last.Partitions = append(last.Partitions, p)
	}
	resp.Dirs = append(resp.Dirs, out)
	return resp
}
