import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { endianness, tmpdir } from 'node:os';
import { join } from 'node:path';
import { itWhere } from '@rookery/testing';
import { type ConnectionEnds, isOwnUser } from './manhole.js';

const onLinux = itWhere(process.platform === 'linux', 'only Linux has such tables');

describe('the user at the other end of a connection of this machine', () => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-manhole-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const ownUid = process.getuid?.() ?? 0;
  const other = ownUid + 1;
  const header = 'sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n';
  const place = (bytes: readonly number[], port: number): string => {
    const words = Buffer.from(bytes);
    if (endianness() === 'LE') words.swap32();
    return `${words.toString('hex').toUpperCase()}:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  };
  const line = (local: string, remote: string, uid: number): string =>
    `   0: ${local} ${remote} 01 00000000:00000000 00:00000000 00000000  ${uid}        0 4711 1 0 20 4 30 10 -1\n`;
  const table = (name: string, ...lines: string[]): string => {
    const file = join(folder, name);
    writeFileSync(file, header + lines.join(''));
    return file;
  };
  const missing = join(folder, 'missing');
  const v4 = (last: number): number[] => [127, 0, 0, last];
  const v6 = [...new Array<number>(15).fill(0), 1];
  const mapped = [...new Array<number>(10).fill(0), 255, 255, ...v4(1)];
  const ends = (address: string): ConnectionEnds => ({
    localAddress: address,
    localPort: 9_000,
    remoteAddress: address,
    remotePort: 40_000,
  });

  onLinux('is known by both addresses and ports', () => {
    const decoy = line(place(v4(2), 40_000), place(v4(2), 9_000), ownUid);
    const theirs = line(place(v4(1), 40_000), place(v4(1), 9_000), other);
    const own = line(place(v4(1), 40_000), place(v4(1), 9_000), ownUid);
    expect(isOwnUser(ends('127.0.0.1'), [table('theirs', decoy, theirs), missing])).toBe(false);
    expect(
      isOwnUser(ends('127.0.0.1'), [table('own', line(place(v4(2), 40_000), place(v4(2), 9_000), other), own)]),
    ).toBe(true);
    expect(isOwnUser(ends('127.0.0.1'), [table('none', decoy), missing])).toBe(false);
  });

  onLinux('is found by IPv6, and where an IPv4 address is written as one of IPv6', () => {
    const empty = table('tcp');
    for (const [bytes, address] of [
      [v6, '::1'],
      [mapped, '127.0.0.1'],
    ] as const) {
      const [at, to] = [place(bytes, 40_000), place(bytes, 9_000)];
      expect(isOwnUser(ends(address), [empty, table('tcp6', line(at, to, ownUid))])).toBe(true);
      expect(isOwnUser(ends(address), [empty, table('tcp6', line(at, to, other))])).toBe(false);
    }
  });

  it('is left to the password where the system does not tell', () => {
    expect(isOwnUser(ends('127.0.0.1'), [missing, missing])).toBe(true);
  });
});
