// Package floors holds the shape of the code: who may import whom, and the style that keeps it readable.
//
// Purpose: docs/ARCHITECTURE.md says that packages stand on floors and imports point down only. Here is the table, and the
// tests that fail when an import points up or sideways, when a package has no place in the table, when a file or function
// grows too long, when a package does not say what it is for, when a goroutine has no owner, or when a test is skipped.
//
// Invariants: every Go file of the repository is looked at, whatever its build tags; only generated protobuf code is exempt
// from style. What looks at the code is the standard library's parser, so nothing has to compile for it.
//
// Non-goals: formatting and correctness (gofmt, go vet and staticcheck have those).
package floors
