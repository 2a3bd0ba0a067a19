package shell

// TestCgroup is for the tests outside of the package.
var TestCgroup = testCgroup
