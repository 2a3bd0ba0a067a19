// Package house holds the tests about the tree itself: which package may import
// which, one package comment each, no init functions, no sleeping tests.
package house
