import { fileURLToPath } from 'node:url';
import { createTestHomeserver } from '@rookery/testing';
import { account, startS3Server } from './s3-server.js';

it('a server keeps its media in the bucket alone, and gives them back from there', async () => {
  const bucket = await startS3Server('media');
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  const config = { ...account, bucket: 'media', endpoint: bucket.endpoint };
  const homeserver = await createTestHomeserver({
    settings: {
      modules: [{ module }],
      enable_local_media_storage: false,
      media_storage_providers: [{ module: 's3-media-storage', store_local: true, store_remote: true, config }],
    },
  });
  try {
    const alice = await homeserver.registerUser('alice');
    const headers = { authorization: `Bearer ${alice.accessToken}`, 'content-type': 'text/plain' };
    const uploaded = await fetch(`${homeserver.baseUrl}/_matrix/media/v3/upload`, {
      method: 'POST',
      headers,
      body: 'from the bucket',
    });
    const { content_uri: uri } = (await uploaded.json()) as { content_uri: string };
    const id = uri.split('/').at(-1) ?? '';
    expect([...bucket.objects.keys()]).toEqual([`local_content/${id.slice(0, 2)}/${id.slice(2, 4)}/${id.slice(4)}`]);
    await homeserver.restart();
    const path = `/_matrix/client/v1/media/download/rookery.test/${id}`;
    const found = await fetch(homeserver.baseUrl + path, { headers });
    expect(await found.text()).toBe('from the bucket');
    bucket.trouble = [403];
    expect((await fetch(homeserver.baseUrl + path, { headers })).status).toBe(404);
  } finally {
    await homeserver.stop();
    await bucket.stop();
  }
});
