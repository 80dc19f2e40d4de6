import { ConfigError, defineModule, type MediaStorageProvider } from '@rookery/module-api';
import { parseConfig } from './config.js';
import { FileCache } from './file-cache.js';
import { largestBytes, S3Client } from './s3-client.js';

/** Keeps media in an S3 bucket, under the paths that they have in the media store. */
export default defineModule({
  name: 's3-media-storage',
  register(api) {
    const clients: S3Client[] = [];
    api.onStop(() => clients.forEach((client) => client.close()));
    api.registerMediaStorageProvider('s3-media-storage', (config, server): MediaStorageProvider => {
      if (server.maxUploadBytes > largestBytes)
        throw new ConfigError('takes files of up to 5 GiB, and the server larger ones: lower max_upload_size');
      const settings = parseConfig(config);
      const client = new S3Client(settings, {
        now: () => api.getCurrentTimeMsec(),
        sleep: (delayMs) => api.sleep(delayMs),
      });
      clients.push(client);
      const cache =
        settings.cache && new FileCache(settings.cache.folder, settings.cache.maxBytes, () => api.getCurrentTimeMsec());
      /** The bucket has the file: what goes wrong beside it is no reason to refuse. */
      const complain = (err: unknown): void => api.log.warn('The cache of media does not work', { err });
      return {
        async storeFile(path, _info, localPath) {
          await client.put(path, localPath);
          await cache?.copy(path, localPath).catch(complain);
        },
        async fetch(path) {
          // What cannot be opened takes nothing either: the contents would be asked for and never read.
          let usable = cache;
          const held = await cache?.open(path).catch((error: unknown) => {
            usable = undefined;
            complain(error);
          });
          if (held) return held;
          const found = await client.get(path);
          if (!found || !usable?.takes(found.sizeBytes)) return found?.contents;
          await usable.fill(path, found.contents).catch(complain);
          return (await usable.open(path).catch(complain)) ?? (await client.get(path))?.contents;
        },
        async remove(path) {
          await cache?.forget(path).catch(complain);
          await client.delete(path);
        },
        downloadUrl: async (path, _info, headers) =>
          settings.presignSeconds !== undefined && (await client.has(path))
            ? client.downloadUrl(path, headers, settings.presignSeconds)
            : undefined,
      };
    });
  },
});
