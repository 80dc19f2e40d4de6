/** Something to tell the operator about the settings. */
export interface ConfigProblem {
  readonly level: 'error' | 'warning';
  /** `homeserver.yaml:12`, or nothing when it is about something that is not there. */
  readonly where: string | undefined;
  /** The setting with its place inside: `listeners[0].port`. */
  readonly setting: string;
  readonly message: string;
}

/** One line: `homeserver.yaml:12: max_upload_size: expected a size such as 50M, found "much"`. */
export function describeProblem(problem: ConfigProblem): string {
  const place = problem.where === undefined ? '' : `${problem.where}: `;
  const text = `${place}${problem.setting === '' ? '' : `${problem.setting}: `}${problem.message}`;
  return text.replace(/\p{Cc}/gu, escaped);
}

/** A control character as it can be written in quotes: whatever a value holds, its problem stays one line. */
const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** The settings cannot be used. The message has one line per error. */
export class SettingsError extends Error {
  constructor(readonly problems: readonly ConfigProblem[]) {
    super(
      problems
        .filter((problem) => problem.level === 'error')
        .map(describeProblem)
        .join('\n'),
    );
    this.name = 'SettingsError';
  }
}
