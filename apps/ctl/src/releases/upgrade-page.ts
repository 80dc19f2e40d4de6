import { releases, standing } from './index.js';
import type { Change } from './register.js';

/** The page `docs/operators/upgrade.md`. */
export function upgradePage(): string {
  const lines = (changes: readonly Change[]): string[] =>
    changes.map(
      ({ kind, about, what, remedy, here }) =>
        `- **${kind}** \`${about}\`: ${escaped(what)}${remedy === undefined ? '' : ` *To do:* ${escaped(remedy)}`}${
          here === undefined ? '' : ` *Here:* ${escaped(here)}`
        }`,
    );
  return [
    '# What changed, release by release',
    '<!-- Written by `npm run docs` from apps/ctl/src/releases. -->',
    `Releases without a name in front are those of the servers of this family, whose settings, tools and modules are understood
here; ours follow them. [How to upgrade](upgrading.md) and [how to go back](going-back.md) have pages of their own. What concerns
your server, with file and line, says \`rookery upgrade notes --from 1.40 --to 1.103 --config homeserver.yaml\`.`,
    '## Holds in every release',
    lines(standing).join('\n'),
    ...releases
      .toReversed()
      .flatMap(({ version, changes, schema }) => [
        `## ${version.replace('rookery-', 'Rookery ')}`,
        [
          ...(schema === undefined
            ? []
            : [
                `- **database** schema version ${schema.version}, served by programs that know ${schema.servedFrom} or newer`,
              ]),
          ...lines(changes),
        ].join('\n'),
      ]),
  ].join('\n\n');
}

const escaped = (text: string): string => text.replaceAll(/[<>*_|]/g, (sign) => `\\${sign}`);
