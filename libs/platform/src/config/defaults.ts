import type { Draft } from './draft.js';
/** x */
export function applyDependentDefaults(_draft: Draft): void {}
