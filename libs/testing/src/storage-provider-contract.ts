import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { MediaFileInfo, MediaStorageProvider } from '@rookery/module-api';

// The test runner's globals; this package is compiled without its types.
declare const describe: (name: string, define: () => void) => void;
declare const it: (name: string, run: () => Promise<void>) => void;
declare const beforeAll: (run: () => Promise<void>) => void;
declare const afterAll: (run: () => Promise<void>) => void;
declare const expect: (value: unknown) => { toBe(expected: unknown): void };

/** A storage provider with an empty place to keep files in. */
export interface StorageProviderUnderTest {
  readonly provider: MediaStorageProvider;
  stop(): Promise<void>;
}

/** What every storage provider for media must do. */
export function describeStorageProvider(name: string, start: () => Promise<StorageProviderUnderTest>): void {
  describe(`storage provider contract: ${name}`, () => {
    let under: StorageProviderUnderTest;
    let folder: string;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'rookery-provider-'));
      under = await start();
    });
    afterAll(async () => {
      await under?.stop();
      await rm(folder, { recursive: true, force: true });
    });

    const info: MediaFileInfo = { serverName: undefined, fileId: 'abcdef', urlCache: false };
    const remote: MediaFileInfo = { ...info, serverName: '[::1]:8448' };
    let count = 0;
    const store = async (path: string, bytes: Uint8Array, what = info): Promise<void> => {
      const localPath = join(folder, String(++count));
      await writeFile(localPath, bytes);
      await under.provider.storeFile(path, what, localPath);
      // Whoever has stored it no longer needs it.
      await rm(localPath);
    };
    const fetched = async (path: string, what = info): Promise<string | undefined> => {
      const source = await under.provider.fetch(path, what);
      if (source === undefined) return undefined;
      const pieces: Uint8Array[] = [];
      for await (const piece of source) pieces.push(piece);
      return Buffer.concat(pieces).toString('base64');
    };
    const text = (value: string): Buffer => Buffer.from(value);

    it('gives back what it was given, byte by byte', async () => {
      const bytes = Buffer.alloc(3_000_000, 'every byte from 0: \0\u0001\u00ff and so on, ');
      await store('local_content/ab/cd/ef', bytes);
      expect(await fetched('local_content/ab/cd/ef')).toBe(bytes.toString('base64'));
      expect(await fetched('local_content/ab/cd/ef')).toBe(bytes.toString('base64'));
    });

    it('says that it does not have a file, rather than to fail', async () => {
      expect(await fetched('local_content/no/th/ing')).toBe(undefined);
      await store('local_content/a1/b2/c3', text('x'));
      // Neither a folder nor something below a file is a file.
      expect(await fetched('local_content/a1/b2')).toBe(undefined);
      expect(await fetched('local_content/a1/b2/c3/d4')).toBe(undefined);
    });

    it('keeps an empty file', async () => {
      await store('local_content/em/pt/y', new Uint8Array());
      expect(await fetched('local_content/em/pt/y')).toBe('');
    });

    it('keeps files of other servers apart, whatever these are called', async () => {
      await store('remote_content/[::1]:8448/ab/cd/ef', text('theirs'), remote);
      await store('remote_content/a.b-C.example/ab/cd/ef', text('others'), remote);
      expect(await fetched('remote_content/[::1]:8448/ab/cd/ef', remote)).toBe(text('theirs').toString('base64'));
      expect(await fetched('remote_content/a.b-C.example/ab/cd/ef', remote)).toBe(text('others').toString('base64'));
    });

    it('replaces a file that it has', async () => {
      await store('local_content/re/pl/ace', text('a longer text before'));
      await store('local_content/re/pl/ace', text('short'));
      expect(await fetched('local_content/re/pl/ace')).toBe(text('short').toString('base64'));
    });

    it('takes many files at once, the same one too', async () => {
      const paths = Array.from({ length: 20 }, (_, i) => `local_content/ma/ny/${i % 15}`);
      await Promise.all(paths.map((path) => store(path, text(path))));
      const found = await Promise.all(paths.map((path) => fetched(path)));
      for (const [i, path] of paths.entries()) expect(found[i]).toBe(text(path).toString('base64'));
    });

    it('lets a reader go away in the middle', async () => {
      await store('local_content/mi/dd/le', Buffer.alloc(5_000_000, 7));
      const source = await under.provider.fetch('local_content/mi/dd/le', info);
      for await (const piece of source ?? []) {
        expect(piece.length > 0).toBe(true);
        break;
      }
      expect((await fetched('local_content/mi/dd/le')) !== undefined).toBe(true);
    });

    it('forgets a file, where it can, and minds no other', async () => {
      if (under.provider.remove === undefined) return;
      await store('local_content/go/ne/1', text('x'));
      await store('local_content/go/ne/12', text('stays'));
      await under.provider.remove('local_content/go/ne/1', info);
      await under.provider.remove('local_content/go/ne/1', info);
      expect(await fetched('local_content/go/ne/1')).toBe(undefined);
      expect(await fetched('local_content/go/ne/12')).toBe(text('stays').toString('base64'));
    });

    it('fails when there is nothing to store, and keeps nothing', async () => {
      let failed = false;
      await under.provider.storeFile('local_content/mi/ss/ing', info, join(folder, 'missing')).catch(() => {
        failed = true;
      });
      expect(failed).toBe(true);
      expect(await fetched('local_content/mi/ss/ing')).toBe(undefined);
    });
  });
}
