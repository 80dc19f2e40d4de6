import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeWhere } from '@rookery/testing';

const describeWithSystemd = describeWhere(
  spawnSync('systemd-analyze', ['--version']).status === 0,
  'there is no systemd-analyze on this machine',
);
const read = (path: string): string => readFileSync(join(process.cwd(), path), 'utf8');
const unit = read('tools/release/debian/rookery.service');

describeWithSystemd('units for systemd', () => {
  let folder: string;

  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'rookery-unit-'))));
  afterEach(() => rmSync(folder, { recursive: true }));

  /** What systemd has against a unit. The programs that a package brings are taken to be there. */
  function verdict(text: string): { status: number | null; said: string } {
    const file = join(folder, 'rookery.service');
    writeFileSync(file, text.replaceAll(/\/usr\/bin\/rookery(?:-homeserver)?(?= )/g, process.execPath));
    const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
    const said = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('rookery'));
    return { status, said: said.join('\n') };
  }

  it('are as systemd wants them: that of the package', () => {
    expect(verdict(unit)).toEqual({ status: 0, said: '' });
    expect(verdict(unit.replace('TimeoutStopSec', 'TimeoutStopSeconds')).said).toContain('TimeoutStopSeconds');
  });

  it('are as systemd wants them: one by the lines of the page about several processes', () => {
    const page = read('docs/operators/scaling.md');
    const lines = [/ExecStart=[^`]+/, /Restart=\w+/, /TimeoutStopSec=\d+/].map((line) => line.exec(page)?.[0]);
    expect(lines).not.toContain(undefined);
    expect(verdict(['[Unit]', 'Description=Rookery', '[Service]', ...lines, ''].join('\n'))).toEqual({
      ...{ status: 0, said: '' },
    });
  });
});
