/** HTML pages and mails. */
export {};
