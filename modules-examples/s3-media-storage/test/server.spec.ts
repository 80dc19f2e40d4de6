import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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

it('clients fetch from the bucket themselves for a while, with what keeps files from running in browsers', async () => {
  const bucket = await startS3Server('media');
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  const config = { ...account, bucket: 'media', endpoint: bucket.endpoint, presign_seconds: 300 };
  const provider = { module: 's3-media-storage', store_local: true, store_remote: true, store_synchronous: true };
  const homeserver = await createTestHomeserver({
    settings: {
      modules: [{ module }],
      enable_local_media_storage: false,
      enable_authenticated_media: false,
      media_storage_providers: [{ ...provider, config }],
    },
  });
  try {
    const alice = await homeserver.registerUser('alice');
    const headers = { authorization: `Bearer ${alice.accessToken}`, 'content-type': 'text/html' };
    const body = '<script>alert(1)</script>';
    const path = '/_matrix/media/v3/upload?filename=a%20page%22.html';
    const uploaded = await fetch(homeserver.baseUrl + path, { method: 'POST', headers, body });
    const { content_uri: uri } = (await uploaded.json()) as { content_uri: string };
    const id = uri.split('/').at(-1) ?? '';
    const get = (path: string, redirect: 'manual' | 'follow' = 'manual') =>
      fetch(homeserver.baseUrl + path, { headers: { authorization: headers.authorization }, redirect });
    const own = `/_matrix/client/v1/media/download/rookery.test/${id}`;
    const sent = await get(own);
    expect(sent.status).toBe(307);
    expect(sent.headers.get('cache-control')).toBe('no-store');
    const address = new URL(sent.headers.get('location') ?? '');
    expect(address.origin).toBe(bucket.endpoint);
    expect(address.searchParams.get('X-Amz-Expires')).toBe('300');
    const followed = await get(`${own}/other.html`, 'follow');
    expect(followed.url).toContain(bucket.endpoint);
    expect(await followed.text()).toBe(body);
    expect(followed.headers.get('content-disposition')).toMatch(/^attachment; filename=.*other\.html/);
    expect(followed.headers.get('content-type')).toMatch(/^text\/html/);
    // Nobody else can make such an address, or use this one for longer, or for something else.
    for (const [name, value] of [
      ['X-Amz-Expires', '3000'],
      ['response-content-disposition', 'inline'],
    ] as const) {
      const forged = new URL(address);
      forged.searchParams.set(name, value);
      expect((await fetch(forged)).status).toBe(403);
    }

    // Without a token only who says so is sent elsewhere.
    const old = `/_matrix/media/v3/download/rookery.test/${id}`;
    const given = await get(old);
    expect(given.status).toBe(200);
    expect(await given.text()).toBe(body);
    expect((await get(`${old}?allow_redirect=true`)).status).toBe(307);
    // What the bucket does not have, nobody is sent there for.
    bucket.objects.clear();
    expect((await get(own)).status).toBe(404);
  } finally {
    await homeserver.stop();
    await bucket.stop();
  }
});

it('what was asked for lately is not fetched again, over restarts, until it is removed', async () => {
  const bucket = await startS3Server('media');
  const folder = mkdtempSync(join(tmpdir(), 'rookery-s3-cache-'));
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  const config = { ...account, bucket: 'media', endpoint: bucket.endpoint, cache_folder: folder, cache_mb: 1 };
  const homeserver = await createTestHomeserver({
    settings: {
      modules: [{ module }],
      enable_local_media_storage: false,
      media_storage_providers: [{ module: 's3-media-storage', store_local: true, store_synchronous: true, config }],
    },
  });
  try {
    const root = await homeserver.registerAdministrator('root');
    const headers = { authorization: `Bearer ${root.accessToken}`, 'content-type': 'text/plain' };
    const upload = async (body: string): Promise<string> => {
      const path = '/_matrix/media/v3/upload';
      const uploaded = await fetch(homeserver.baseUrl + path, { method: 'POST', headers, body });
      return ((await uploaded.json()) as { content_uri: string }).content_uri.split('/').at(-1) ?? '';
    };
    const path = '/_matrix/client/v1/media/download/rookery.test/';
    const lengthOf = async (id: string): Promise<number> =>
      (await (await fetch(homeserver.baseUrl + path + id, { headers })).text()).length;
    const ids: string[] = [];
    for (let i = 0; i < 6; i++) ids.push(await upload(String(i).repeat(250_000)));
    // Of six times 250,000 bytes one MiB is kept: those that came last.
    expect(readdirSync(folder)).toHaveLength(4);
    bucket.requests = 0;
    expect(await lengthOf(ids[5]!)).toBe(250_000);
    await homeserver.restart();
    expect(await lengthOf(ids[5]!)).toBe(250_000);
    expect(bucket.requests).toBe(0);
    expect(await lengthOf(ids[0]!)).toBe(250_000);
    expect(bucket.requests).toBe(1);
    expect(await lengthOf(ids[0]!)).toBe(250_000);
    expect(bucket.requests).toBe(1);
    expect(readdirSync(folder)).toHaveLength(4);
    // One that is too large for its share comes through.
    const large = await upload('x'.repeat(300_000));
    expect(await lengthOf(large)).toBe(300_000);
    expect(readdirSync(folder)).toHaveLength(4);
    await root.request('DELETE', `/_synapse/admin/v1/media/rookery.test/${ids[0]}`);
    expect(readdirSync(folder)).toHaveLength(3);
    // A cache that does not work keeps nobody from a file.
    rmSync(folder, { recursive: true });
    expect(await lengthOf(ids[1]!)).toBe(250_000);
  } finally {
    await homeserver.stop();
    await bucket.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
