/** How a version of the module API suits a module that was made for a range of them. */
export type Fit = 'fits' | 'older server' | 'another server';

const alternative = /^(\^|~|>=|=)?\s*v?(\d{1,6})(?:\.(\d{1,6}|x|\*))?/i;

/**
 * Whether a server's version is in a range of `peerDependencies`, as far as it matters: its first number has to be one of the
 * range's, and a smaller second number means that something may be missing (`older server`). Ranges that say no number fit.
 */
export function fitOf(range: string, version: string): Fit {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const fits = range.split('||').map((part): Fit => {
    const found = alternative.exec(part.trim());
    if (!found) return 'fits';
    const [, operator, wantedMajor, wantedMinor] = found;
    const below = /<\s*v?(\d{1,6})/.exec(part)?.[1];
    const isOpen = operator === '>=' && major > Number(wantedMajor);
    if (isOpen) return below !== undefined && major >= Number(below) ? 'another server' : 'fits';
    if (major !== Number(wantedMajor)) return 'another server';
    return minor < (Number(wantedMinor) || 0) ? 'older server' : 'fits';
  });
  return fits.find((fit) => fit === 'fits') ?? fits.find((fit) => fit === 'older server') ?? 'another server';
}

/** What to do where {@link fitOf} is not `fits`; the sentence has both numbers. */
export function misfitOf(range: string, version: string): string {
  const wanted = Number(/\d+/.exec(range)?.[0] ?? 0);
  const isNewer = wanted >= Number(version.split('.')[0]);
  return (
    `it is made for @rookery/module-api ${range}, this server has ${version}; ` +
    (isNewer ? 'update the server or install an older version of the module' : 'install a newer version of the module')
  );
}
