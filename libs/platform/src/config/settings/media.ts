import * as k from '../kinds.js';
import { optional, setting } from '../setting.js';

const thumbnail = k.object({
  width: k.need(k.whole(1, 8192), 'Pixels.'),
  height: k.need(k.whole(1, 8192), 'Pixels.'),
  method: k.need(k.oneOf('crop', 'scale'), '`crop` fills the frame, `scale` fits into it.'),
});

/** Media and previews of links. */
export const mediaSettings = {
  enable_authenticated_media: setting(k.flag, true, 'New media are shown to logged-in users only.', { since: '1.120' }),
  enable_media_repo: setting(
    k.flag,
    true,
    'The server serves media. Several processes (`redis.enabled`) all do, whatever it says: for none, the reverse proxy leaves these paths out.',
  ),
  enable_local_media_storage: setting(
    k.flag,
    true,
    'Keep media in `media_store_path`; false: in the storage providers only.',
    { since: '1.146' },
  ),
  media_store_path: setting(k.path, 'media_store', 'Folder of the media.'),
  max_pending_media_uploads: setting(k.whole(), 5, 'Media ids a user may have reserved without uploading.'),
  unused_expiration_time: setting(k.duration, 86_400_000, 'How long a reserved media id waits for its upload.'),
  media_storage_providers: setting(
    k.list(
      k.object({
        module: k.need(
          k.text({ empty: false }),
          '`file_system`, or the name that a module gave to its storage provider.',
        ),
        store_local: k.field(k.flag, false, 'Store what local users upload.'),
        store_remote: k.field(k.flag, false, 'Store what comes from other servers.'),
        store_synchronous: k.field(k.flag, false, 'Wait until it is stored.'),
        config: k.field(k.anything, undefined, 'Handed to the provider; `directory` for `file_system`.'),
      }),
    ),
    [],
    'Further places where media are stored and looked for, in order.',
  ),
  backup_media_store_path: optional(k.path, 'Old form of a `file_system` storage provider.', {
    deprecated: 'write media_storage_providers',
  }),
  synchronous_backup_media_store: optional(k.flag, 'Old form of `store_synchronous`.', {
    deprecated: 'write media_storage_providers',
  }),
  max_upload_size: setting(k.size, 50 * 1024 ** 2, 'Largest upload, bytes.'),
  media_upload_limits: setting(
    k.list(
      k.object({
        time_period: k.need(k.duration, 'Period.'),
        max_size: k.need(k.size, 'Bytes that a user may upload in it.'),
        info_uri: k.maybe(k.httpUrl, 'Page that tells users more; the server’s own when unset.'),
        can_upgrade: k.maybe(k.flag, 'Whether users can have a higher limit, for example for money.'),
      }),
    ),
    [],
    'How much a user may upload.',
    { since: '1.135' },
  ),
  max_image_pixels: setting(k.size, 32 * 1024 ** 2, 'Most pixels of an image that thumbnails are made of.'),
  remote_media_download_burst_count: setting(
    k.size,
    500 * 1024 ** 2,
    'Bytes of remote media that one address may fetch in one go.',
  ),
  remote_media_download_per_second: setting(
    k.size,
    87 * 1024,
    'Bytes of remote media per second that one address may fetch in the long run.',
  ),
  remote_media_downloads_per_server: setting(
    k.whole(1, 64),
    24,
    'Files of one other server that are fetched at once; more wait for their turn.',
  ),
  remote_media_downloads_per_user: setting(
    k.whole(1, 64),
    8,
    'The same for one user, or for one network where nobody is logged in.',
  ),
  prevent_media_downloads_from: setting(k.list(k.text({ empty: false })), [], 'Servers whose media are not fetched.'),
  dynamic_thumbnails: setting(k.flag, false, 'Make thumbnails of any size when asked, instead of the sizes below.'),
  thumbnail_sizes: setting(
    k.list(thumbnail),
    [
      { width: 32, height: 32, method: 'crop' },
      { width: 96, height: 96, method: 'crop' },
      { width: 320, height: 240, method: 'scale' },
      { width: 640, height: 480, method: 'scale' },
      { width: 800, height: 600, method: 'scale' },
    ],
    'Sizes of thumbnails.',
  ),
  'media_retention.local_media_lifetime': optional(
    k.duration,
    'How long after its last use media of local users is deleted.',
  ),
  'media_retention.remote_media_lifetime': optional(
    k.duration,
    'How long after its last use media of other servers is deleted.',
  ),
  media_instance_running_background_jobs: optional(
    k.text({ empty: false }),
    'Worker that deletes old media; the main process while it is away, and when unset.',
  ),
  url_preview_enabled: setting(k.flag, false, 'Make previews of links.', {
    rule: 'Needs `url_preview_ip_range_blacklist`, unless a proxy is set.',
  }),
  url_preview_ip_range_blacklist: optional(k.list(k.ipRange), 'Addresses that are not fetched for previews.'),
  url_preview_ip_range_whitelist: setting(k.list(k.ipRange), [], 'Exceptions.'),
  url_preview_url_blacklist: setting(
    k.list(k.mapOf(k.text({ numbers: true }))),
    [],
    'Links without a preview: parts of the URL (`scheme`, `username`, `netloc`, `path`, `port`…) as glob, or as regular expression when beginning with `^`.',
  ),
  max_spider_size: setting(k.size, 10 * 1024 ** 2, 'Largest page fetched for a preview, bytes.'),
  url_preview_accept_language: setting(k.list(k.text({ empty: false })), ['en'], 'Languages asked for.'),
  'oembed.disable_default_providers': setting(k.flag, false, 'Use no built-in oEmbed providers.'),
  'oembed.additional_providers': setting(k.list(k.path), [], 'JSON files with more oEmbed providers.'),
};
