//! Which device, port and GID; the protection domain that everything else belongs to.

use std::ffi::CStr;
use std::fs::File;
use std::io::ErrorKind;
use std::ptr::NonNull;

use ibverbs_sys as sys;

use super::{Port, VerbsConfig, VerbsError, VerbsRoute};

/// The most GIDs that are examined.
const GIDS_MAX: usize = 256;

/// An open device with its protection domain.
pub(super) struct Device {
    context: NonNull<sys::ibv_context>,
    domain: NonNull<sys::ibv_pd>,
    pub(super) port: Port,
    /// What the system calls it.
    pub(super) name: String,
}

// SAFETY: libibverbs objects are bound to no thread and its calls on a context and a protection
// domain may be made from any of them; `Device` only hands the pointers to such calls.
unsafe impl Send for Device {}
// SAFETY: as for `Send`; a `Device` does not change after it was opened.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device that `config` names, or the first one with an active port.
    pub(super) fn open(config: &VerbsConfig) -> Result<Self, VerbsError> {
        let list = DeviceList::new()?;
        match &config.device {
            Some(name) => {
                let found = list.iter().find(|device| list.name(*device) == *name);
                let device = found.ok_or_else(|| VerbsError::NoSuchDevice {
                    name: name.clone(),
                    available: list.iter().map(|device| list.name(device)).collect(),
                })?;
                Self::open_one(device, name, config)
            }
            None => {
                let mut failure = VerbsError::NoDevice;
                for device in list.iter() {
                    match Self::open_one(device, &list.name(device), config) {
                        Ok(open) => return Ok(open),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        }
    }

    fn open_one(
        device: NonNull<sys::ibv_device>,
        name: &str,
        config: &VerbsConfig,
    ) -> Result<Self, VerbsError> {
        // SAFETY: the device comes from a list that is still allocated.
        let context = unsafe { sys::ibv_open_device(device.as_ptr()) };
        let Some(context) = NonNull::new(context) else {
            return Err(open_error(name));
        };
        let opened = choose_port(context, name, config).and_then(|port| {
            // SAFETY: the context is open.
            let domain = unsafe { sys::ibv_alloc_pd(context.as_ptr()) };
            let domain = NonNull::new(domain).ok_or_else(|| VerbsError::last("ibv_alloc_pd"))?;
            Ok(Self {
                context,
                domain,
                port,
                name: name.to_owned(),
            })
        });
        if opened.is_err() {
            // SAFETY: opened above, and nothing was made from it.
            unsafe { sys::ibv_close_device(context.as_ptr()) };
        }
        opened
    }

    #[inline]
    pub(super) fn context(&self) -> *mut sys::ibv_context {
        self.context.as_ptr()
    }

    /// The way from the own port to `route`.
    pub(super) fn way_to(&self, route: &VerbsRoute) -> sys::ibv_ah_attr {
        let mut attributes = sys::ibv_ah_attr {
            dlid: route.lid,
            port_num: self.port.number,
            is_global: u8::from(route.lid == 0),
            ..Default::default()
        };
        attributes.grh.dgid = sys::ibv_gid { raw: route.gid };
        attributes.grh.sgid_index = self.port.gid_index;
        attributes.grh.hop_limit = 64;
        attributes
    }

    pub(super) fn domain(&self) -> *mut sys::ibv_pd {
        self.domain.as_ptr()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: whatever was made from the domain holds an `Arc` of this device, so it is gone.
        unsafe { sys::ibv_dealloc_pd(self.domain.as_ptr()) };
        // SAFETY: the domain was the last thing made from the context.
        unsafe { sys::ibv_close_device(self.context.as_ptr()) };
    }
}

/// libibverbs tries several paths for the device file. After a refusal its last message is that
/// there is none in the last of them, so the files themselves are checked.
fn open_error(name: &str) -> VerbsError {
    let failure = VerbsError::last("ibv_open_device");
    let forbidden = std::fs::read_dir("/dev/infiniband").is_ok_and(|files| {
        files.filter_map(Result::ok).any(|file| {
            let open = File::options().read(true).write(true).open(file.path());
            let is_device = file.file_name().to_string_lossy().starts_with("uverbs");
            is_device && open.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        })
    });
    if forbidden {
        VerbsError::PermissionDenied {
            device: name.to_owned(),
        }
    } else {
        failure
    }
}

fn choose_port(
    context: NonNull<sys::ibv_context>,
    name: &str,
    config: &VerbsConfig,
) -> Result<Port, VerbsError> {
    let number = config.port;
    let mut attributes = sys::ibv_port_attr::default();
    // SAFETY: the context is open. The symbol of the older ABI fills a prefix of the structure,
    // the rest stays zero; both sizes fit.
    let result = unsafe {
        sys::ibv_query_port(
            context.as_ptr(),
            number,
            (&raw mut attributes).cast::<sys::_compat_ibv_port_attr>(),
        )
    };
    if result != 0 {
        return Err(VerbsError::NoSuchPort {
            device: name.to_owned(),
            port: number,
        });
    }
    if attributes.state != sys::ibv_port_state::IBV_PORT_ACTIVE {
        return Err(VerbsError::PortDown {
            device: name.to_owned(),
            port: number,
        });
    }
    let is_ethernet = u32::from(attributes.link_layer) == sys::IBV_LINK_LAYER_ETHERNET;
    let (gid_index, gid) = choose_gid(&gid_table(context, number), config.gid_index, name)?;
    Ok(Port {
        number,
        lid: if is_ethernet { 0 } else { attributes.lid },
        gid,
        gid_index,
        is_ethernet,
        mtu: 128usize << attributes.active_mtu,
    })
}

fn gid_table(context: NonNull<sys::ibv_context>, port: u8) -> Vec<sys::ibv_gid_entry> {
    let mut entries = vec![sys::ibv_gid_entry::default(); GIDS_MAX];
    // SAFETY: the context is open, and the table has room for as many entries of this size as said.
    let count = unsafe {
        sys::_ibv_query_gid_table(
            context.as_ptr(),
            entries.as_mut_ptr(),
            entries.len(),
            0,
            size_of::<sys::ibv_gid_entry>(),
        )
    };
    entries.truncate(usize::try_from(count).unwrap_or(0));
    entries.retain(|entry| entry.port_num == u32::from(port));
    entries
}

/// The GID at `wanted`, or the most routable one: RoCE v2 over IPv4, RoCE v2, any.
fn choose_gid(
    entries: &[sys::ibv_gid_entry],
    wanted: Option<u32>,
    device: &str,
) -> Result<(u8, [u8; 16]), VerbsError> {
    let rank = |entry: &&sys::ibv_gid_entry| {
        let gid = raw_gid(entry);
        let is_v2 = entry.gid_type == sys::IBV_GID_TYPE_ROCE_V2;
        let is_link_local = gid[0] == 0xfe && gid[1] == 0x80;
        (
            is_v2 && is_ipv4_mapped(&gid),
            is_v2 && !is_link_local,
            is_v2,
        )
    };
    let found = match wanted {
        Some(index) => entries.iter().find(|entry| entry.gid_index == index),
        // `max_by_key` takes the last of equals; reversed, that is the one of the lowest index.
        None => entries.iter().rev().max_by_key(rank),
    };
    let usable =
        found.and_then(|entry| Some((u8::try_from(entry.gid_index).ok()?, raw_gid(entry))));
    usable.ok_or_else(|| VerbsError::NoSuchGid {
        device: device.to_owned(),
        index: wanted,
        available: entries.iter().map(|entry| entry.gid_index).collect(),
    })
}

/// True for the GID that represents an IPv4 address.
pub(super) fn is_ipv4_mapped(gid: &[u8; 16]) -> bool {
    gid[..10] == [0; 10] && gid[10..12] == [0xff; 2]
}

fn raw_gid(entry: &sys::ibv_gid_entry) -> [u8; 16] {
    // SAFETY: every bit pattern of the union is a valid array of bytes.
    unsafe { entry.gid.raw }
}

struct DeviceList {
    list: NonNull<*mut sys::ibv_device>,
    count: usize,
}

impl DeviceList {
    fn new() -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
        let list = NonNull::new(list).ok_or(VerbsError::NoDevice)?;
        let count = usize::try_from(count).unwrap_or(0);
        let list = Self { list, count };
        if count == 0 {
            Err(VerbsError::NoDevice)
        } else {
            Ok(list)
        }
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<sys::ibv_device>> + '_ {
        (0..self.count).filter_map(|index| {
            // SAFETY: the list has `count` elements.
            let slot = unsafe { self.list.add(index) };
            // SAFETY: as above; the elements are initialized pointers.
            NonNull::new(unsafe { slot.read() })
        })
    }

    fn name(&self, device: NonNull<sys::ibv_device>) -> String {
        // SAFETY: the device belongs to this list, which is still allocated.
        let name = unsafe { sys::ibv_get_device_name(device.as_ptr()) };
        // SAFETY: libibverbs returns a string inside the device structure.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list came from `ibv_get_device_list` and is freed once.
        unsafe { sys::ibv_free_device_list(self.list.as_ptr()) };
    }
}
