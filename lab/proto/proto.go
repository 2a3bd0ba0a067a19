// Package proto is what the kernel lab's host (lab/run) and guest (lab/init and
// the tests that it runs) say to each other: the guest's orders, which travel
// in its initramfs, the frames that it answers with on one virtio-serial port,
// and what its tests ask of the host on another.
package proto

// Orders is the file at OrdersPath in the initramfs.
type Orders struct {
	Modules []Module `json:"modules"` // in the order of loading
	Suites  []Suite  `json:"suites"`
	Env     []string `json:"env"` // what every suite's environment has, KEY=value
	// Seconds bounds one suite. The guest ends one that takes longer.
	Seconds int `json:"seconds"`
}

// Module is a kernel module of the initramfs.
type Module struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Params string `json:"params,omitempty"`
}

// Suite is a test binary of the initramfs.
type Suite struct {
	Name   string `json:"name"`   // the package's path below the module: "gpio"
	Binary string `json:"binary"` // its path in the guest
	Dir    string `json:"dir"`    // where it is to run
	Run    string `json:"run"`    // the pattern of -test.run
}

// SkipParam is the parameter of the kernel's command line that says how many
// suites of the orders an earlier guest has run.
const SkipParam = "lab.skip"

// Paths in the guest.
const (
	OrdersPath  = "/lab/orders.json"
	ModulesDir  = "/lab/modules"    // modules by name, loaded or to be loaded by a test
	ResultsPort = "farhand.results" // names of virtio-serial ports: /dev/virtio-ports/NAME
	RequestPort = "farhand.requests"
	WirePort    = "farhand.wire" // the far end of QEMU's USB serial adapter
)

// Frame is one line of JSON on the results port.
type Frame struct {
	Kind string `json:"kind"`
	// Suite names the suite for Start, Output and End.
	Suite   string  `json:"suite,omitempty"`
	Output  []byte  `json:"output,omitempty"`  // as the test binary wrote it, -test.v=test2json
	Text    string  `json:"text,omitempty"`    // Boot: the kernel's release; End and Failed: what went wrong
	Exit    int     `json:"exit,omitempty"`    // End: the exit code
	Seconds float64 `json:"seconds,omitempty"` // Boot: the guest's uptime; End: how long the suite ran
}

// Kinds of frames, in the order in which a run sends them.
const (
	Boot   = "boot"   // the guest is up, modules are loaded
	Start  = "start"  // a suite starts
	Output = "output" // a piece of its output
	End    = "end"    // it is over
	Done   = "done"   // every suite is over, or one failed; the guest powers off
	Failed = "failed" // the guest itself can't do its work
)

// Request is one line of JSON that a test writes to the request port. The
// answer is one line too.
type Request struct {
	Do     string `json:"do"`
	Serial string `json:"serial,omitempty"` // the adapter's serial number
}

// What can be requested.
const (
	PlugFTDI   = "plug-ftdi"
	UnplugFTDI = "unplug-ftdi"
)

// Answer is what the host says to a Request.
type Answer struct {
	Error string `json:"error,omitempty"`
}
