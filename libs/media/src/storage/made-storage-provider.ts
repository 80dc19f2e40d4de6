import type { MediaServerSettings, MediaStorageProvider } from '@rookery/module-api';
import { type ProviderFactory, providerParts } from '@rookery/module-host';
import type { Config } from '@rookery/platform';

/**
 * A module's storage provider, for an entry of the setting `media_storage_providers`.
 * @param own the entry's `config`
 * @throws Error when the module refuses it, or makes something else
 */
export async function madeStorageProvider(
  factory: ProviderFactory<'mediaStorage'>,
  own: unknown,
  config: Config,
): Promise<MediaStorageProvider> {
  const provider = factory.create(own, mediaServerSettings(config));
  const { storeFile, fetch } = (await providerParts(provider)) ?? {};
  if (typeof storeFile !== 'function' || typeof fetch !== 'function')
    throw new Error('what the module made is no storage provider');
  return provider;
}

/** What storage providers are told of the server: no secrets, and nothing that a thread could not be handed. */
function mediaServerSettings(config: Config): MediaServerSettings {
  return {
    serverName: config.serverName,
    publicBaseurl: config.get('public_baseurl'),
    configDir: config.configDir,
    mediaStorePath: config.get('media_store_path'),
    keepsLocalFiles: config.get('enable_local_media_storage'),
    maxUploadBytes: config.get('max_upload_size'),
    maxImagePixels: config.get('max_image_pixels'),
    dynamicThumbnails: config.get('dynamic_thumbnails'),
    thumbnailSizes: config.get('thumbnail_sizes').map(({ width, height, method }) => ({
      widthPx: width,
      heightPx: height,
      method,
    })),
    uploadLimits: config.get('media_upload_limits').map((limit) => ({
      maxBytes: limit.max_size,
      timePeriodMs: limit.time_period,
      infoUri: limit.info_uri,
      canUpgrade: limit.can_upgrade,
    })),
    localMediaLifetimeMs: config.get('media_retention.local_media_lifetime'),
    remoteMediaLifetimeMs: config.get('media_retention.remote_media_lifetime'),
  };
}
