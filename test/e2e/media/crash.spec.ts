import { createHash, randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import sharp from 'sharp';
import { databaseKinds, ServerProcess } from '../../support/server-process.js';

const rounds = 3;
const uploaders = 8;

const hash = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

describe.each(databaseKinds)('media of a server that is killed (%s)', (kind) => {
  let server: ServerProcess;
  let token: string;
  beforeAll(async () => {
    server = await ServerProcess.prepare(kind);
    await server.start();
    const registered = await fetch(`${server.baseUrl}/_matrix/client/v3/register`, {
      method: 'POST',
      body: JSON.stringify({ username: 'alice', password: 'a password', auth: { type: 'm.login.dummy' } }),
    });
    token = ((await registered.json()) as { access_token: string }).access_token;
  });
  afterAll(() => server?.remove());
  const headers = (): Record<string, string> => ({ authorization: `Bearer ${token}`, 'content-type': 'image/png' });

  it('what was acknowledged is there, whole; what was not left no half file in the store', async () => {
    const picture = await sharp({ create: { width: 300, height: 200, channels: 3, background: 'red' } })
      .png()
      .toBuffer();
    const acknowledged = new Map<string, string>();
    const sent = new Set<string>();
    for (let round = 0; round < rounds; round++) {
      let going = true;
      const work = Array.from({ length: uploaders }, async () => {
        while (going) {
          // A picture with something behind its end: each has its own contents, and thumbnails are made of it.
          const bytes = new Uint8Array(Buffer.concat([picture, randomBytes(200_000)]));
          sent.add(hash(bytes));
          const answer = await fetch(`${server.baseUrl}/_matrix/media/v3/upload`, {
            ...{ method: 'POST', headers: headers(), body: bytes },
          }).catch(() => undefined);
          if (answer?.status !== 200) return;
          const body = (await answer.json().catch(() => undefined)) as { content_uri: string } | undefined;
          if (body !== undefined) acknowledged.set(body.content_uri.slice('mxc://'.length), hash(bytes));
        }
      });
      const before = acknowledged.size;
      while (acknowledged.size < before + 10) await new Promise((resolve) => setTimeout(resolve, 5));
      await server.stop('SIGKILL');
      going = false;
      await Promise.all(work);
      await server.start();
    }
    expect(acknowledged.size).toBeGreaterThanOrEqual(rounds * 10);
    for (const [media, wanted] of acknowledged) {
      const answer = await fetch(`${server.baseUrl}/_matrix/client/v1/media/download/${media}`, { headers: headers() });
      expect([media, answer.status, hash(new Uint8Array(await answer.arrayBuffer()))]).toEqual([media, 200, wanted]);
      const thumbnail = await fetch(
        `${server.baseUrl}/_matrix/client/v1/media/thumbnail/${media}?width=32&height=32&method=crop`,
        { headers: headers() },
      );
      expect([media, thumbnail.status]).toEqual([media, 200]);
      expect(await sharp(await thumbnail.arrayBuffer()).metadata()).toMatchObject({ width: 32, height: 32 });
    }
    // A file that nobody acknowledged may have come into the store, but not a part of one.
    const store = join(server.folder, 'media', 'local_content');
    for (const entry of await readdir(store, { recursive: true, withFileTypes: true })) {
      if (entry.isFile()) expect(sent.has(hash(await readFile(join(entry.parentPath, entry.name))))).toBe(true);
    }
  }, 120_000);
});
