import { defineModule, type MediaStorageProvider } from '@rookery/module-api';
import { parseConfig } from './config.js';
import { S3Client } from './s3-client.js';

/** Keeps media in an S3 bucket, under the paths that they have in the media store. */
export default defineModule({
  name: 's3-media-storage',
  register(api) {
    const clients: S3Client[] = [];
    api.onStop(() => clients.forEach((client) => client.close()));
    api.registerMediaStorageProvider('s3-media-storage', (config): MediaStorageProvider => {
      const client = new S3Client(parseConfig(config), {
        now: () => api.getCurrentTimeMsec(),
        sleep: (delayMs) => api.sleep(delayMs),
      });
      clients.push(client);
      return {
        storeFile: (path, _info, localPath) => client.put(path, localPath),
        fetch: (path) => client.get(path),
        remove: (path) => client.delete(path),
      };
    });
  },
});
