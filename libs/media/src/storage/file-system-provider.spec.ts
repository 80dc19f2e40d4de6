import { type FileHandle, mkdtemp, open, readdir, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { describeStorageProvider } from '@rookery/testing';
import { FileSystemProvider, fileSystemProvider } from './file-system-provider.js';

describeStorageProvider('file_system', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-fs-'));
  return {
    provider: new FileSystemProvider(join(folder, 'not', 'there', 'yet')),
    async stop() {
      const names = await readdir(folder, { recursive: true });
      expect(names.filter((name) => name.endsWith('.partial'))).toEqual([]);
      await rm(folder, { recursive: true });
    },
  };
});

it('has a file on the disk, and in its folders, before it says so', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-fs-'));
  const source = join(folder, 'source');
  await writeFile(source, 'content');
  const handle = await open(source);
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  const { sync } = prototype;
  const synced: string[] = [];
  prototype.sync = async function (this: FileHandle): Promise<void> {
    await sync.call(this);
    synced.push(relative(folder, await readlink(`/proc/self/fd/${this.fd}`)));
  };
  try {
    const info = { serverName: undefined, fileId: 'x', urlCache: false };
    await new FileSystemProvider(join(folder, 'store')).storeFile('a/b/x', info, source);
  } finally {
    prototype.sync = sync;
    await rm(folder, { recursive: true });
  }
  expect(synced).toEqual([expect.stringMatching(/^store\/a\/b\/x\..*partial$/), 'store/a/b', 'store/a', 'store', '']);
});

it('stays in its folder', async () => {
  const provider = new FileSystemProvider('/nowhere/store');
  const info = { serverName: undefined, fileId: 'x', urlCache: false };
  await expect(provider.fetch('../../etc/passwd')).rejects.toThrow('leaves');
  await expect(provider.storeFile('../x', info, '/etc/hostname')).rejects.toThrow('leaves');
  await expect(provider.remove('..')).rejects.toThrow('leaves');
});

it.each([[undefined], [null], [{}], [{ directory: '' }], [{ directory: 7 }], ['text']])(
  'wants a folder, not %j',
  (config) => {
    expect(() => fileSystemProvider(config, '/base')).toThrow("'config.directory'");
  },
);
