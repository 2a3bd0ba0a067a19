//go:build !unix

package atomicfile

const dontWait = 0
