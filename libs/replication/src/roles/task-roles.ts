import { defineRole, type Role } from './roles.js';

/** Background work that needs nothing of the process that writes: tasks (`BackgroundTasks`) of this name, and what counts and tidies beside them. */
export const backgroundRole: Role = defineRole('background');

/** The tasks of this name, which delete media that nobody uses, and what belongs to none. */
export const mediaRole: Role = defineRole('media');
