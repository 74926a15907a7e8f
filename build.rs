//! The migrations are compiled into the program. Cargo can't see that from the sources, so it is
//! told.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
