package tiering

import (
	"fmt"
	"strings"

	"varve/metastore"
)

// A row's location says where its object is: the store's canonical URL, then '#' and the folder in it unless that is empty. Of an
// object that a restore left where the cluster before this one had put it, the location goes on with "//" and that cluster's
// id, which the object's key holds. No folder holds "//" (objstore.ValidateKey), and no canonical URL a '#'.
func locationOf(url, prefix, cluster string) string {
	switch {
	case prefix != "" && cluster != "":
		return url + "#" + prefix + clusterMark + cluster
	case prefix != "":
		return url + "#" + prefix
	case cluster != "":
		return url + "#" + clusterMark + cluster
	}
	return url
}

const clusterMark = "//"

// clusterIn is the id of the cluster whose folder a location names; "" is the cluster that has the row.
func clusterIn(location string) string {
	_, folder, _ := strings.Cut(location, "#")
	_, cluster, _ := strings.Cut(folder, clusterMark)
	return cluster
}

// rowKey is the key of a segment's object.
func (m *Manager) rowKey(s metastore.RemoteSegment) string {
	cluster := clusterIn(s.Location)
	if cluster == "" {
		cluster = m.o.ClusterID
	}
	return segmentKeyIn(m.o.Prefix, cluster, &s)
}

func segmentKeyIn(prefix, cluster string, s *metastore.RemoteSegment) string {
	return SegmentKey{
		Prefix: prefix, ClusterID: cluster, TopicID: s.TopicID, Partition: s.Partition, Base: s.Base, Next: s.Next,
		MaxTimestamp: s.MaxTimestamp, LeaderEpoch: s.LeaderEpoch, Generation: s.Generation, ID: s.ID,
	}.String()
}

// inOtherFolder reports whether the object lies where another cluster had put it.
func inOtherFolder(s metastore.RemoteSegment) bool { return clusterIn(s.Location) != "" }

// here reports whether a location is that of this cluster's store and folder.
func (m *Manager) here(location string) bool {
	return location == locationOf(m.o.Location, m.o.Prefix, clusterIn(location))
}

// elsewhere is a hint for errors: the segment was written to another store than
// the one configured now. That alone is no error: a folder may have moved, an
// endpoint may have a new name, and a key names one object wherever it is.
func (m *Manager) elsewhere(s metastore.RemoteSegment) string {
	if m.here(s.Location) {
		return ""
	}
	return fmt.Sprintf(": it was written to %s, but varve.tier.url is now %s", s.Location, m.location)
}
