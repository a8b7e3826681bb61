// Package tierpb holds the protobuf messages inside tier objects, generated
// from segment.proto by protoc-gen-go:
//
//	protoc --go_out=. --go_opt=module=varve tiering/tierpb/segment.proto
//
// Non-goals: anything that is stored outside of the bucket.
package tierpb
