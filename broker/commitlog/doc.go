// Package commitlog is a partition's log on local disk.
package commitlog
