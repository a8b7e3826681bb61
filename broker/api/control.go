package api

import (
	"context"

	"varve/metastore/controller"
)

// Controller decides about topics; *controller.Controller. Results are in the
// order of what was asked for; after a change they return once this broker's own
// metadata shows it. ElectLeaders with nil means all partitions and answers those
// that had an election.
type Controller interface {
	CreateTopics(ctx context.Context, topics []controller.CreateTopic, validateOnly bool) []controller.CreateResult
	DeleteTopics(ctx context.Context, topics []controller.DeleteTopic) []controller.DeleteResult
	CreatePartitions(ctx context.Context, topics []controller.CreatePartitions, validateOnly bool) []controller.TopicResult
	AlterConfigs(ctx context.Context, change controller.ConfigChange, validateOnly bool) error
	ElectLeaders(ctx context.Context, partitions []controller.TopicPartition, unclean bool) ([]controller.ElectResult, error)
}

// once returns the names that occur exactly once, as the set of them, and those
// that occur more often, in order.
func once[T any](items []T, name func(*T) string) (single map[string]bool, twice []string) {
	single = make(map[string]bool, len(items))
	for i := range items {
		n := name(&items[i])
		first, seen := single[n]
		switch {
		case !seen:
			single[n] = true
		case first:
			single[n] = false
			twice = append(twice, n)
		}
	}
	return single, twice
}
