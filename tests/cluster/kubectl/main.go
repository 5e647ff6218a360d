// Package main is kubectl alone. In one binary with the servers each call would first initialize all of Kubernetes: 0.2
// seconds of a cpu, and tests call it thousands of times.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

func main() {
	os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
}
