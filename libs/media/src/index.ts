/** Upload, download, thumbnails, URL previews. */
export {};
