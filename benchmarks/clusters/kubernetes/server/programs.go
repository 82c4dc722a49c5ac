//go:build programs

// Package programs names the two programs that are built: `go mod tidy` keeps what they need.
package programs

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
