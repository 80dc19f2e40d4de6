import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
