import { FakeClock } from '@rookery/testing';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SystemNameResolver } from './system-name-resolver.js';

describe('names of the system', () => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-hosts-'));
  const file = join(folder, 'hosts');
  afterAll(() => rmSync(folder, { recursive: true }));

  it('come from the file of hosts first, which is read again when it changed', async () => {
    writeFileSync(file, '# ours\n10.1.2.3 Matrix.Internal other # more\n::7\tmatrix.internal\nnonsense x\n10.9.9.9\n');
    const clock = new FakeClock();
    const resolver = new SystemNameResolver(clock, file);
    expect(await resolver.endpoints('matrix.INTERNAL', 8448)).toEqual([
      { address: '10.1.2.3', port: 8448 },
      { address: '::7', port: 8448 },
    ]);
    writeFileSync(file, '10.1.2.4 matrix.internal\n');
    await clock.advance(9_000);
    expect(await resolver.endpoints('matrix.internal', 1)).toHaveLength(2);
    await clock.advance(2_000);
    expect(await resolver.endpoints('matrix.internal', 1)).toEqual([{ address: '10.1.2.4', port: 1 }]);
    rmSync(file);
  });
});
