// Package screen tells whoever stands beside the appliance how things are:
// which code to scan to pair it, what it waits for, under which name and
// address it is reached, and how to join its rescue network.
//
// There are four places to look. The picture on an attached display, drawn into
// the framebuffer over a text version of the same on tty1, which is what remains
// where there is no framebuffer. The serial console, in plain ASCII within 80
// columns. PAIR.TXT and PAIR.PNG, for the boot partition. And one line in the
// log for each new code. All are made of one Page, so that they agree.
//
// Only Screen holds anything open, and it opens a device for one drawing only:
// if the process dies, the console is an ordinary console again.
package screen
